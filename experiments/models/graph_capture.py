"""Training step captured as one device graph, so that the host does not launch every operator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.devices import Device
from experiments.models.trainer import Trainer, flat_gradients
from experiments.workload import Dtype


class CapturedTrainer(Trainer):
    """Trainer that launches forward pass, backward pass and update as one graph, with the batch at fixed addresses.

    Raises Unsupported if the device has no graphs, or the step cannot be captured.
    """

    def __init__(self, model: nn.Module, inputs: Tensor, targets: Tensor, device: Device, dtype: Dtype) -> None:
        super().__init__(model, inputs, targets, device, dtype, tuned=True)
        for group in self.optimiser.param_groups:
            group["capturable"] = True
        self.replay: Callable[[], object] = self.device.graph([self._run_step])

    def _run_step(self) -> None:
        # Drop old gradients, so that the capture places gradients in the graph's memory. Do not store the loss: its
        # autograd nodes would stay bound to the stream used before the capture.
        self.optimiser.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimiser.step()

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return a replay's gradients, as `Trainer.gradients` does; nan if the replay does not change the weights."""
        trained = [parameter.data for parameter in self.model.parameters() if parameter.requires_grad]
        places = [self.inputs, self.targets, *trained]
        saved = [place.clone() for place in places]
        self.inputs.copy_(inputs)
        self.targets.copy_(targets.flatten())
        self.replay()
        gradients = flat_gradients(self.model)
        moved = any(not torch.equal(now, before) for now, before in zip(places[2:], saved[2:], strict=True))
        for place, before in zip(places, saved, strict=True):
            place.copy_(before)
        return gradients if moved else gradients * math.nan
