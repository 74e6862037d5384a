"""Training steps captured as one device graph, to spare the host from launching every operator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.devices import Device
from experiments.models.trainer import Trainer, flat_gradients
from experiments.workload import Dtype


class CapturedTrainer(Trainer):
    """Trainer that launches the forward pass, the backward pass and the update together as one device graph.

    The graph reads each batch from the same memory addresses. Raises Unsupported if the device has no graphs, or if the
    step cannot be captured.
    """

    def __init__(self, model: nn.Module, inputs: Tensor, targets: Tensor, device: Device, dtype: Dtype) -> None:
        super().__init__(model, inputs, targets, device, dtype, tuned=True)
        for group in self.optimiser.param_groups:
            group["capturable"] = True
        self.replay: Callable[[], object] = self.device.graph([self._run_step])

    def _run_step(self) -> None:
        # Drop old gradients, to make the capture allocate new ones in the graph's memory. Do not store the loss,
        # because its autograd nodes would stay bound to the stream used before the capture.
        self.optimiser.zero_grad(set_to_none=True)
        self.backpropagate(self.loss())
        self.optimiser.step()

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Launch the graph on another batch and return its gradients, as `Trainer.gradients` does.

        The gradients are nan if the graph does not change the weights. Afterwards, the weights and the batch are
        restored.
        """
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
