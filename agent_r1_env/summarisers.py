"""Models that write summaries: behind an OpenAI-compatible endpoint, or in a local folder."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_r1_env.errors import SummaryError, missing_extra, unknown_name
from agent_r1_env.messages import Message

INSTRUCTION = (
    "Summarise this conversation for the assistant, who will go on with the task and sees nothing of it but "
    "your summary. Keep every fact, number, name and result that may matter, what was tried and what failed. "
    "Do not answer the task. Be brief."
)
_ENDPOINT = ("api_key_env", "instruction", "max_tokens", "model", "timeout", "url")
_LOCAL = ("instruction", "max_tokens", "model")


def made(options: Mapping[str, Any], folder: Path) -> Endpoint | LocalModel:
    """What ``with: {url: ..., model: ...}`` or ``with: {model: FOLDER}`` stands for.

    Raises:
        UnknownName: there is no such option.
        ValueError: there is no model.
    """
    known = _ENDPOINT if "url" in options or "model" not in options else _LOCAL
    for option in options:
        if option not in known:
            raise unknown_name("option", str(option), known, "'with' of the context policy 'summarise'")
    if "model" not in options:
        raise ValueError("'with' of the context policy 'summarise' needs the name of a model as 'model'")
    if "url" in options:
        return Endpoint(**options)
    return LocalModel(**{**options, "model": folder / Path(options["model"]).expanduser()})


def transcript(messages: Sequence[Message]) -> str:
    """A conversation as the text that a model is asked to summarise."""
    return "\n\n".join(f"[{each.role}]\n{each.content}" for each in messages)


class Endpoint:
    """A chat model behind an OpenAI-compatible endpoint."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key_env: str = "",
        instruction: str = INSTRUCTION,
        max_tokens: int = 512,
        timeout: float = 30.0,
    ) -> None:
        """Nothing is asked yet.

        Args:
            url: without ``/chat/completions``, such as ``http://localhost:8000/v1``.
            api_key_env: the environment variable that holds the key, if the endpoint wants one.
            timeout: seconds for connecting, and for each part of the answer.
        """
        self.url = f"{url.rstrip('/')}/chat/completions"
        self.model, self.instruction, self.max_tokens, self.timeout = model, instruction, max_tokens, timeout
        self._api_key_env = api_key_env

    def prepare(self) -> None:
        """Look for what asking needs.

        Raises:
            MissingExtra: httpx is not installed.
            ValueError: the environment variable is not set.
        """
        if importlib.util.find_spec("httpx") is None:
            raise missing_extra("httpx", "http")
        if self._api_key_env and self._api_key_env not in os.environ:
            raise ValueError(f"the environment variable {self._api_key_env} is not set; export it first")

    def __call__(self, messages: list[Message]) -> str:
        """The summary.

        Raises:
            SummaryError: the endpoint cannot be reached, refuses, or gives no text.
        """
        import httpx

        body = {
            "model": self.model,
            "messages": _asked(messages, self.instruction),
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
        }
        key = os.environ.get(self._api_key_env) if self._api_key_env else None
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            answer = httpx.post(self.url, json=body, headers=headers, timeout=self.timeout)
            answer.raise_for_status()
            text = answer.json()["choices"][0]["message"]["content"]
        except httpx.HTTPStatusError as failure:
            raise SummaryError(f"{self.url} answered {failure.response.status_code}") from failure
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            raise SummaryError(f"asking {self.url} failed: {type(failure).__name__}") from failure
        except (ValueError, LookupError, TypeError) as failure:
            raise SummaryError(f"{self.url} gave no chat completion") from failure
        return _summary(text)


class LocalModel:
    """A causal language model of transformers in a folder, loaded when it is first asked.

    It decodes greedily, one summary at a time, and is shared by all environments of the process.
    """

    def __init__(self, model: str | Path, *, instruction: str = INSTRUCTION, max_tokens: int = 256) -> None:
        """Nothing is loaded yet."""
        self.folder = Path(model)
        self.instruction, self.max_tokens = instruction, max_tokens

    def prepare(self) -> None:
        """Look for what the model needs; loading it waits.

        Raises:
            MissingExtra: transformers is not installed.
            ValueError: there is no such folder; nothing is downloaded.
        """
        if importlib.util.find_spec("transformers") is None:
            raise missing_extra("transformers", "train")
        if not self.folder.is_dir():
            raise ValueError(
                f"no folder {str(self.folder)!r}; name a folder that holds a model, "
                "or give a url beside its name"
            )

    def __call__(self, messages: list[Message]) -> str:
        """The summary. What does not fit before it in the model's context is left out, from the middle.

        Raises:
            SummaryError: the model writes nothing.
        """
        with _ONE_AT_A_TIME:
            model, tokenizer = _loaded(self.folder)
            ids = _prompt_ids(tokenizer, _asked(messages, self.instruction))
            limit = int(model.config.get_text_config().max_position_embeddings) - self.max_tokens
            if len(ids) > limit:
                ids = ids[: limit // 2] + ids[len(ids) - (limit - limit // 2) :]
            return _summary(_generated(model, tokenizer, ids, self.max_tokens))


_ONE_AT_A_TIME = threading.Lock()


@lru_cache(maxsize=1)
def _loaded(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _prompt_ids(tokenizer: Any, asked: list[dict[str, str]]) -> list[int]:
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        return list(tokenizer.encode(text, add_special_tokens=False))
    return list(tokenizer.encode(f"{asked[0]['content']}\n\nSummary:"))


def _generated(model: Any, tokenizer: Any, ids: list[int], max_tokens: int) -> str:
    import torch

    prompt = torch.tensor([ids], device=model.device)
    with torch.no_grad():
        found = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=max_tokens,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
        )
    return str(tokenizer.decode(found[0, len(ids) :].tolist(), skip_special_tokens=True))


def _asked(messages: Sequence[Message], instruction: str) -> list[dict[str, str]]:
    # One turn: no chat template has tools, systems and roles in every order.
    return [{"role": "user", "content": f"{instruction}\n\n{transcript(messages)}"}]


def _summary(text: Any) -> str:
    """The text behind the model's reasoning, if it wrote some."""
    if not isinstance(text, str) or not (said := text.rpartition("</think>")[2].strip()):
        raise SummaryError("the model wrote no summary")
    return said
