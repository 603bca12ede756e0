"""Shapes of arrays do not fit."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="shape_mismatch",
    sees="An operation got arrays whose shapes do not fit.",
    advice=(
        "Print the shapes before the line that the traceback names; look at the last batch and at the vocabulary size."
    ),
    raised=(
        "shapes? cannot be multiplied",
        r"size of tensor a \(",
        "shapes? mismatch",
        "must match the (?:size|existing size)",
        "could not broadcast input array",
        "could not be broadcast together",
        r"shapes \(.{1,60}\) (?:and|not aligned)",
        "Expected input batch_size",
        "mismatch in its core dimension",
        "invalid for input of size",
        "Sizes of tensors must match",
        "cannot reshape array",
        "Incompatible shapes",
        "stack expects each tensor to be equal size",
        "inhomogeneous shape",
        "target out of bounds",
        "Expected tensor to have size",
    ),
).rule
