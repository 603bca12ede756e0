"""Shapes of arrays do not match."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="shape_mismatch",
    title="Shape mismatch",
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
        r"mat1 (?:dim|and mat2)",
        r"The size of tensor a",
        r"expected .{0,60} to have \d+ channels",
        r"Given groups=\d+, weight of size",
        r"(?:Dimension|Dimensions) must be equal, but are",
        r"Incompatible shapes|Matrix size-incompatible",
        r"dot_general requires contracting dimensions to have the same shape",
        r"incompatible shapes for broadcasting",
        r"inconsistent tensor size|size mismatch, (?:m1|got)",
        r"cannot broadcast|shapes do not match|shape '\[.{0,60}\]' is invalid",
        r"IndexError: index out of range in self",
        r"expected input\[.{1,40}\] to have",
        r"input\.size\(-1\) must be equal to input_size",
    ),
).rule
