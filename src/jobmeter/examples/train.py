"""A small training job on real data: handwritten digits, a neural network, a few epochs.

Each replica (``RANK`` of ``WORLD_SIZE``) learns from its own share of the digits and saves its weights after every
round, as a data-parallel job would. Needs scikit-learn. ``python -m jobmeter.examples.train --help``
"""

import os
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float64]
Labels = NDArray[np.int64]


@click.command()
@click.option("--seconds", type=click.FloatRange(0.0), default=25.0, show_default=True, help="How long to train.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to save weights; by default nowhere for long."
)
def command(seconds: float, directory: Path | None) -> None:
    """Train a digit classifier for some seconds and print its accuracy."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    images, labels, test_images, test_labels = load_shard(rank, world)
    click.echo(f"replica {rank} of {world}: {len(labels)} training images, {images.nbytes / 2**20:.0f} MiB")
    with tempfile.TemporaryDirectory() as own:
        train(images, labels, test_images, test_labels, seconds, directory or Path(own))


def load_shard(rank: int, world: int) -> tuple[Images, Labels, Images, Labels]:
    """Return the training images and labels of this replica, and the test images and labels that all replicas share.

    An image is 64 numbers from 0 to 1. Each training image occurs nine times, shifted by up to one pixel either way.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415 - the rest of the package does without scikit-learn

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.images[order] / 16.0, digits.target[order].astype(np.int64)
    cut = len(labels) * 4 // 5
    moves = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    moved = [np.roll(images[rank:cut:world], move, axis=(1, 2)) for move in moves]
    own = np.concatenate(moved).reshape(-1, 64)
    return own, np.tile(labels[rank:cut:world], len(moves)), images[cut:].reshape(-1, 64), labels[cut:]


def train(
    images: Images, labels: Labels, test_images: Images, test_labels: Labels, seconds: float, directory: Path
) -> float:
    """Train for some seconds, save weights, and print the accuracy on the test images. Return the last accuracy."""
    from sklearn.neural_network import MLPClassifier  # noqa: PLC0415 - as above
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - comes with scikit-learn

    # One replica, one core: the numeric libraries would otherwise start a thread for every core in each replica.
    threadpool_limits(1)
    model = MLPClassifier(hidden_layer_sizes=(256, 128), random_state=0)
    random = np.random.default_rng(0)
    directory.mkdir(parents=True, exist_ok=True)
    began, said, epoch, accuracy = time.monotonic(), 0.0, 0, 0.0
    while epoch == 0 or time.monotonic() - began < seconds:
        order = random.permutation(len(labels))
        model.partial_fit(images[order], labels[order], classes=np.arange(10))
        epoch += 1
        np.savez(directory / f"weights-{os.environ.get('RANK', '0')}.npz", *model.coefs_)
        accuracy = float(model.score(test_images, test_labels))
        if time.monotonic() - said > max(seconds / 4, 1.0):
            said = time.monotonic()
            click.echo(f"epoch {epoch}: {accuracy:.1%} of the test digits are read correctly")
    click.echo(f"done after {epoch} epochs: accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    command()
