"""A training step as one graph of the device: no operator waits for the host to launch it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.devices import Device
from experiments.models.trainer import Trainer, flat_gradients
from experiments.workload import Dtype


class CapturedTrainer(Trainer):
    """A trainer whose forward pass, backward pass and update are one launch, on one batch's memory.

    Raises Unsupported where the device has no graphs, or the step cannot be captured.
    """

    def __init__(self, model: nn.Module, inputs: Tensor, targets: Tensor, device: Device, dtype: Dtype) -> None:
        super().__init__(model, inputs, targets, device, dtype, tuned=True)
        for group in self.optimiser.param_groups:
            group["capturable"] = True
        self.replay: Callable[[], object] = self.device.graph([self._run_step])

    def _run_step(self) -> None:
        # Gradients of the capture lie in the graph's own memory. The loss is kept nowhere: its nodes would be
        # bound to the stream on which the step ran before the capture.
        self.optimiser.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimiser.step()

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """As the eager trainer's, of a replay; nan where the replay does not change the weights."""
        trained = [parameter.data for parameter in self.model.parameters() if parameter.requires_grad]
        places = [self.inputs, self.targets, *trained]
        kept = [place.clone() for place in places]
        self.inputs.copy_(inputs)
        self.targets.copy_(targets.flatten())
        self.replay()
        found = flat_gradients(self.model)
        moved = any(not torch.equal(now, before) for now, before in zip(places[2:], kept[2:], strict=True))
        for place, before in zip(places, kept, strict=True):
            place.copy_(before)
        return found if moved else found * math.nan
