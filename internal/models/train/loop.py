"""What every training run has in common: its length, learning rate, averaged weights, curve and checkpoint."""

import copy
import csv
import math
import pathlib
import time

import torch


def options(parser, rate):
    """Adds the options of a run to a parser."""
    parser.add_argument("--out", type=pathlib.Path, required=True)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, help="length of the schedule")
    length.add_argument("--seconds", type=float, help="instead of steps: the schedule follows the clock")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds, then checkpoint and end")
    parser.add_argument("--every", type=float, default=60, help="seconds between checkpoints")
    parser.add_argument("--rate", type=float, default=rate)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-copyleft", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0)


class Run:
    """A run in a folder, which goes on where it was stopped.

    average holds the mean of the latest weights, which is what is used in the
    end. facts are kept in the checkpoint beside the weights.
    """

    def __init__(self, arguments, model, optimizer, facts, slowest=0.998):
        self.arguments, self.model, self.optimizer = arguments, model, optimizer
        self.facts, self.slowest = facts, slowest
        self.average = copy.deepcopy(model).eval()
        self.step, self.spent = 0, 0.0
        self.total, self.counted = 0.0, 0
        self.checkpoint = arguments.out / "checkpoint.pt"
        arguments.out.mkdir(parents=True, exist_ok=True)
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint, map_location=arguments.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.average.load_state_dict(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.spent = state["step"], state["seconds"]
            print("resumed at step", self.step, flush=True)
        self.begun = self.noted = time.monotonic()

    def elapsed(self):
        return self.spent + time.monotonic() - self.begun

    def share(self):
        """How much of the schedule is over."""
        if self.arguments.steps:
            return self.step / self.arguments.steps
        return min(1.0, self.elapsed() / self.arguments.seconds)

    def going(self):
        """Whether another step is due; sets its learning rate: a warm-up, then a cosine down to a hundredth."""
        share = self.share()
        rate = self.arguments.rate * min(1, (self.step + 1) / 200) * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return share < 1 and time.monotonic() - self.begun < self.arguments.stop_after

    def learn(self, loss, largest):
        """One step down the gradient, whose norm is cut at `largest`."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), largest)
        self.optimizer.step()
        self.step += 1
        self.total, self.counted = self.total + loss.detach(), self.counted + 1
        keep = min(self.slowest, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - keep)
            for mean, latest in zip(self.average.buffers(), self.model.buffers()):
                mean.lerp_(latest, 1 - keep) if mean.is_floating_point() else mean.copy_(latest)

    def due(self):
        """Whether it is time to note how good the model is."""
        return time.monotonic() - self.noted > self.arguments.every

    def note(self, **measures):
        """Adds a row to curve.csv and writes the checkpoint."""
        loss = float(self.total) / max(1, self.counted)
        row = {"step": self.step, "seconds": f"{self.elapsed():.0f}", "loss": f"{loss:.5f}"}
        row |= {name: f"{value:.4f}" for name, value in measures.items()}
        curve = self.arguments.out / "curve.csv"
        new = not curve.exists()
        with open(curve, "a", newline="") as f:
            writer = csv.writer(f, lineterminator="\n")
            if new:
                writer.writerow(row)
            writer.writerow(row.values())
        print(*(f"{name} {value}" for name, value in row.items()), flush=True)
        torch.save({
            "model": self.model.state_dict(), "average": self.average.state_dict(), "optimizer": self.optimizer.state_dict(),
            "step": self.step, "seconds": self.elapsed(), **self.facts,
        }, self.checkpoint)
        self.total, self.counted, self.noted = 0.0, 0, time.monotonic()
