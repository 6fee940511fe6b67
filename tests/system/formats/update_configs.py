#!/usr/bin/env python3
"""Writes the memory tables in the comments of configs/*.ini anew, after a change of what a rank needs.

Usage: update_configs.py CARAVAN_PROGRAM     (from the root of the repository)
"""
import pathlib
import subprocess
import sys


def table(text, prefix):
    """First and last line of the table, and its lines without prefix."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(prefix + "ranks query heads"))
    last = first
    while last < len(lines) and len(lines[last]) > len(prefix):
        last += 1
    return first, last, [line[len(prefix):] for line in lines[first:last]]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for path in sorted(pathlib.Path("configs").glob("llama-*.ini")):
        text = path.read_text(encoding="utf-8")
        command = next(line for line in text.splitlines() if "caravan plan " in line).split("caravan plan ")[1].split()
        command[command.index("config.json")] = f"tests/data/architectures/{path.stem}.json"
        printed = subprocess.run([sys.argv[1], "plan", "--log-level", "warning", *command], check=True,
                                 capture_output=True, text=True).stdout
        first, last, _ = table(text, "# ")
        lines = text.splitlines()
        lines[first:last] = ["# " + row for row in table(printed, "")[2]]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
