#!/usr/bin/env python3
"""Prompts of Zephyr, plain Llama 3 and ChatML behind BOS, by the template engine of `transformers` and `tokenizers`.

Usage: make_chat_layouts.py > chat/layouts.jsonl      (transformers 5.24, tokenizers 0.23)
Each line: chat format, tokenizer, its BOS and EOS, the template, a conversation, the rendered text and its ids. Zephyr's
template prints no BOS: the ids are those of the text as a raw prompt, before which the tokenizer puts it.
"""
import json
import os
import sys

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
GENERATE = "{% if add_generation_prompt %}"
FORMATS = {
    "zephyr": ("spm-small", "<s>", "</s>",
               "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}" + GENERATE +
               "{{ '<|assistant|>\\n' }}{% endif %}"),
    "llama3-plain": ("bpe-small", "<|begin_of_text|>", "<|eot_id|>",
                     "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + "
                     "'<|eot_id|>' }}{% endfor %}" + GENERATE + "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"),
    "chatml-bos": ("smollm-small", "<|endoftext|>", "<|im_end|>",
                   "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}" +
                   GENERATE + "{{ '<|im_start|>assistant\\n' }}{% endif %}"),
}
CONVERSATIONS = [
    [("user", "What is the capital of France?")],
    [("system", "You are a helpful assistant."), ("user", "Hi")],
    [("system", " Be brief.\n"), ("user", "\n\n 12 + 30 = ?  "), ("assistant", " 42 \n"), ("user", "\tAnd\u00a0then?")],
    [("user", ""), ("assistant", ""), ("user", "  ")],
    [("user", "\u00e9t\u00e9 \u4f60\u597d \U0001f600"), ("assistant", "caf\u00e9\r\n")],
    [("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("system", "e"), ("user", "f")],
    [("user", "[INST] <|user|> </think>"), ("assistant", "<|assistant|>\n x")],
]


def main():
    for name, (folder, bos, eos, template) in FORMATS.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(HERE, folder, "tokenizer.json"), bos_token=bos, eos_token=eos)
        for conversation in CONVERSATIONS:
            messages = [{"role": role, "content": content} for role, content in conversation]
            for prompt in (True, False):
                text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=prompt)
                ids = tokenizer.backend_tokenizer.encode(text, add_special_tokens=name == "zephyr").ids
                json.dump({"format": name, "tokenizer": folder, "bos": bos, "eos": eos, "template": template, "messages": messages,
                           "add_generation_prompt": prompt, "rendered": text, "ids": ids}, sys.stdout, separators=(",", ":"))
                print()


main()
