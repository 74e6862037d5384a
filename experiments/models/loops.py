"""The MLP's training step as plain loops: interpreted, compiled as written, compiled for vectors. One source."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from experiments.backends.loops import compiled, dots
from experiments.models.zoo import Mlp
from experiments.work import Dtype

Batch = tuple[torch.Tensor, torch.Tensor]


def add_bias(y: Any, bias: Any, batch: int, width: int, clip: bool, zero: Any) -> None:
    """y (batch, width) += bias; with `clip`, then the larger of it and zero (ReLU)."""
    for s in range(batch):
        for j in range(width):
            value = y[s * width + j] + bias[j]
            y[s * width + j] = zero if clip and value < zero else value


def loss_gradient(scores: Any, labels: Any, gradient: Any, batch: int, width: int) -> None:
    """Gradient of the mean cross entropy by the scores (batch, width): softmax less the label, over the batch."""
    for s in range(batch):
        most = scores[s * width]
        for j in range(width):
            most = max(most, scores[s * width + j])
        total = most - most
        for j in range(width):
            gradient[s * width + j] = math.exp(scores[s * width + j] - most)
            total += gradient[s * width + j]
        for j in range(width):
            gradient[s * width + j] /= total * batch
        gradient[s * width + labels[s]] -= total / (total * batch)


def cut(gradient: Any, y: Any, length: int, zero: Any) -> None:
    """Zero where ReLU let nothing through."""
    for i in range(length):
        if y[i] <= zero:
            gradient[i] = zero


def transpose(x: Any, out: Any, rows: int, columns: int) -> None:
    """out (columns, rows) = x (rows, columns) turned."""
    for i in range(rows):
        for j in range(columns):
            out[j * rows + i] = x[i * columns + j]


def column_sums(x: Any, out: Any, rows: int, columns: int, zero: Any) -> None:
    """out (columns) = sums over the rows of x (rows, columns)."""
    for j in range(columns):
        total = zero
        for i in range(rows):
            total += x[i * columns + j]
        out[j] = total


def adam(w: Any, g: Any, mean: Any, square: Any, length: int, rate: Any, keep: Any, epsilon: Any) -> None:
    """One update by Adam (Kingma & Ba 2015, end of section 2: the corrections of the bias are in rate and epsilon).

    keep: the shares of the old mean, of the gradient, of the old square, of the gradient's square.
    """
    for i in range(length):
        mean[i] = keep[0] * mean[i] + keep[1] * g[i]
        square[i] = keep[2] * square[i] + keep[3] * g[i] * g[i]
        w[i] -= rate * mean[i] / (math.sqrt(square[i]) + epsilon)


class LoopTrainer:
    """The same step as `Trainer` on the MLP, on flat sequences; interpreted, on lists of Python's float64."""

    RATE, B1, B2, EPSILON = 1e-4, 0.9, 0.999, 1e-8

    def __init__(self, how: str, model: Mlp, batch: Batch, dtype: Dtype) -> None:
        self.how, self.model = how, model
        self.number = float if how == "python" else np.dtype(dtype.value).type
        self.layers = [
            tuple(self._flat(parameter.detach()) for parameter in layer.parameters()) for layer in model.layers
        ]
        self.moments = [[(self._empty(len(p)), self._empty(len(p))) for p in layer] for layer in self.layers]
        self.taken = 0
        self.give(batch)

    def give(self, batch: Batch) -> None:
        """Take these images and labels from now on."""
        images, labels = batch
        self.size = len(labels)
        self.images = self._flat(images)
        self.labels = labels.tolist() if self.how == "python" else labels.numpy()

    def _flat(self, tensor: torch.Tensor) -> Any:
        flat = tensor.flatten().double().numpy()
        return flat.tolist() if self.how == "python" else flat.astype(self.number)

    def _empty(self, length: int) -> Any:
        return [0.0] * length if self.how == "python" else np.zeros(length, self.number)

    def _call(self, function: Any, *arguments: Any) -> None:
        compiled(function, self.how)(*arguments)

    def forward(self) -> None:
        """Scores of the batch, and the outputs of every layer on the way."""
        zero, widths, batch = self.number(0), self.model.WIDTHS, self.size
        self.outputs = [self.images]
        for index, (weight, bias) in enumerate(self.layers):
            k, n = widths[index], widths[index + 1]
            y = self._empty(batch * n)
            self._call(dots, self.outputs[-1], weight, y, batch, n, k, zero)
            self._call(add_bias, y, bias, batch, n, index + 1 < len(self.layers), zero)
            self.outputs.append(y)

    def backward(self) -> None:
        """Gradients of all weights and biases."""
        zero, widths, batch = self.number(0), self.model.WIDTHS, self.size
        above = self._empty(batch * widths[-1])
        self._call(loss_gradient, self.outputs[-1], self.labels, above, batch, widths[-1])
        self.gradients: list[tuple[Any, Any]] = []
        for index in reversed(range(len(self.layers))):
            k, n = widths[index], widths[index + 1]
            x, (weight, _) = self.outputs[index], self.layers[index]
            above_t, x_t = self._empty(n * batch), self._empty(k * batch)
            steeper, shift = self._empty(n * k), self._empty(n)
            self._call(transpose, above, above_t, batch, n)
            self._call(transpose, x, x_t, batch, k)
            self._call(dots, above_t, x_t, steeper, n, k, batch, zero)
            self._call(column_sums, above, shift, batch, n, zero)
            self.gradients.insert(0, (steeper, shift))
            if index:
                turned, below = self._empty(k * n), self._empty(batch * k)
                self._call(transpose, weight, turned, n, k)
                self._call(dots, above, turned, below, batch, k, n, zero)
                self._call(cut, below, x, batch * k, zero)
                above = below

    def update(self) -> None:
        """Change the weights by Adam."""
        self.taken += 1
        first, second = 1 - self.B1**self.taken, 1 - self.B2**self.taken
        rate, epsilon = (self.number(x) for x in (self.RATE * second**0.5 / first, self.EPSILON * second**0.5))
        keep = tuple(self.number(x) for x in (self.B1, 1 - self.B1, self.B2, 1 - self.B2))
        for layer, gradients, moments in zip(self.layers, self.gradients, self.moments, strict=True):
            for w, g, (mean, square) in zip(layer, gradients, moments, strict=True):
                self._call(adam, w, g, mean, square, len(w), rate, keep, epsilon)

    def error(self, batch: Batch) -> float:
        """Relative error of all gradients on a fresh batch against PyTorch's in float64; the rest goes on with it."""
        self.give(batch)
        reference = Mlp().double()
        flat = [p for layer in self.layers for p in layer]
        with torch.no_grad():
            for parameter, ours in zip(reference.parameters(), flat, strict=True):
                parameter.copy_(torch.tensor(np.asarray(ours, float)).reshape(parameter.shape))
        torch.nn.functional.cross_entropy(reference(batch[0].double()), batch[1]).backward()
        self.forward()
        self.backward()
        got = np.concatenate([np.asarray(g, float) for pair in self.gradients for g in pair])
        right = np.concatenate([p.grad.numpy().ravel() for p in reference.parameters() if p.grad is not None])
        return float(np.linalg.norm(got - right) / np.linalg.norm(right))
