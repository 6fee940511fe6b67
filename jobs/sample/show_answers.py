"""Prints the answers of a batch beside its prompts: show_answers.py PROMPTS.jsonl ANSWERS.jsonl"""

import json
import sys


def records(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def prompt_of(body):
    if "messages" in body:
        return body["messages"][-1]["content"]
    return body["prompt"]


def answers_of(record):
    if record["error"]:
        return ["error: " + record["error"]["message"]]
    choices = record["response"]["body"]["choices"]
    return [choice["message"]["content"] if "message" in choice else choice["text"] for choice in choices]


prompts = {record["custom_id"]: record["body"] for record in records(sys.argv[1])}
for record in records(sys.argv[2]):
    name = record["custom_id"]
    print(f"\n[{name}] {prompt_of(prompts[name])}")
    for answer in answers_of(record):
        print("  " + answer.strip().replace("\n", "\n  "))
