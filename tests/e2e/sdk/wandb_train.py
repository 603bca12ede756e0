"""A program that logs with Weights & Biases, offline."""

import math
import sys

import wandb

if __name__ == "__main__":
    run = wandb.init(project="vision", name="first", config={"lr": 0.1, "net": {"depth": 50}}, tags=["a", "b"])
    print(run.id, flush=True)
    for step in range(int(sys.argv[1])):
        values = {"loss": 1 / (step + 1), "val/acc": step, "net": {"norm": 2.0 * step}, "name": "x" * 5_000}
        wandb.log({**values, "odd": math.nan if step == 3 else step})
    if sys.argv[2] == "fail":
        run.finish(exit_code=3)
    else:
        run.finish()
