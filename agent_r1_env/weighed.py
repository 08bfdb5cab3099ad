"""TRL's trainer with a loss in which every token weighs what it should, in parts that fit in memory.

TRL averages over whatever rows and micro-batches there are. Here each token brings its weight in the column
``token_weights``, and the loss is corrected from the weight that TRL's loss would give it. The weights are
all that changes: the objectives, clipping, KL divergence, importance sampling and metrics are TRL's own code.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from trl import GRPOTrainer

from agent_r1_env.microbatch import TokenFactor, combine, log_probs, parts, trained, trl_weights


class WeighedGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL ships no types
    """``trl.GRPOTrainer`` for batches with ``tool_mask``, (B, T) ``advantages`` and ``token_weights``.

    The weights of all tokens that are trained on, over all micro-batches and processes, sum to 1 for a mean.
    """

    _rows_at_once: int
    beta: Any  # a number for TRL

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss, a few rows of similar length at a time."""
        divisible = self.model.training and not (
            self.is_deepspeed_enabled  # its backward also steps its engine
            or self.aux_loss_enabled
            or self._entropy_bonus_enabled
            or self.top_entropy_quantile < 1.0
        )
        pieces = list(parts(inputs, self._rows_at_once if divisible else len(inputs["completion_ids"])))
        metrics = self._metrics["train" if self.model.training else "eval"]
        known, value = {name: len(values) for name, values in metrics.items()}, 0.0
        synchronised = isinstance(model, DistributedDataParallel)  # once is enough
        for number, part in enumerate(pieces, start=1):
            whole = number == len(pieces)
            with nullcontext() if whole or not synchronised else model.no_sync():
                loss = self._weighed_loss(model, part)
                value += float(loss.detach())
                if not whole:
                    self.accelerator.backward(loss)
        tokens = torch.tensor([float(trained(part).sum()) for part in pieces], device=loss.device)
        combine(metrics, known, self.accelerator.reduce(tokens, "sum").tolist())
        result: torch.Tensor = loss + (value - loss.detach())
        return result

    def _weighed_loss(self, model: Any, part: dict[str, Any]) -> torch.Tensor:
        """TRL's loss with the weights that tokens should have in place of those that TRL gives them.

        The advantages carry them into the objective, which is proportional to those, and ``beta`` into the
        KL divergence.
        """
        processes = self.accelerator.num_processes  # whose gradients are averaged
        accumulated = self.current_gradient_accumulation_steps if self.model.training else 1
        window = accumulated / self.args.steps_per_generation if self.model.training else 1.0
        total = float(part["num_items_in_batch"].clamp(min=1)) / processes * window
        given = trl_weights(self.loss_type, part, self.max_completion_length, accumulated, total)
        factors = part["token_weights"] * (processes / window) / given
        beta, self.beta = self.beta, TokenFactor(self.beta, factors)
        try:
            loss: torch.Tensor = super()._compute_loss(
                model, part | {"advantages": part["advantages"] * factors}
            )
        finally:
            self.beta = beta
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        **options: Any,
    ) -> Any:
        """TRL's log-probs; of a whole batch, without computing what only pads it."""
        ask = super()._get_per_token_logps_and_entropies
        if options.get("compute_entropy"):  # from the loss, whose parts are trimmed already
            return ask(model, input_ids, attention_mask, logits_to_keep, **options)

        def compute(ids: torch.Tensor, mask: torch.Tensor, keep: int) -> torch.Tensor:
            found: torch.Tensor = ask(model, ids, mask, keep)[0]
            return found

        return log_probs(compute, input_ids, attention_mask, logits_to_keep, self._rows_at_once), None, None
