"""Play many lives of the simulation: ``python tests/simulation/run.py --seeds 0-999``.

It stops at the first violation, with the seed and the rule, and exits with 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulation.lives import life


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", required=True, metavar="A-B", help="the first and the last seed")
    first, _, last = parser.parse_args().seeds.partition("-")
    total, faults = Counter[str](), Counter[str]()
    for seed in range(int(first), int(last or first) + 1):
        gc.disable()  # a life makes no cycles of any size until it ends
        try:
            world = life(seed)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        finally:
            gc.enable()
        total["seeds"] += 1
        total["operations"] += world.done
        total["requests"] += len(world.remote.requests)
        total["states"] += len(world.remote.steps)
        faults += world.faults
    print(json.dumps({**total, "faults": dict(sorted(faults.items()))}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
