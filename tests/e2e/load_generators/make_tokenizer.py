"""Makes a tokenizer that counts as the endpoint does: a token is a run of up to six characters that are not white space.

    python make_tokenizer.py HUB NAME [TEXT ...]

It is run with the load generator's own Python, needs `tokenizers` alone, and writes NAME into HUB in the layout of
Hugging Face's cache, so that it is found without a network. What is in no TEXT is one unknown token, which is a token of
the endpoint's too: counts agree for any text, there and back.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

COMMIT = "0" * 40
UNKNOWN = "[UNK]"
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": UNKNOWN, "model_max_length": 163840}


def pieces(texts: list[Path]) -> list[str]:
    found = {f"{letter}{number}" for letter in "abcdefghij" for number in range(500)}
    for path in texts:
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        found |= set(re.findall(r"\S{1,6}", text))
    return sorted(found)


def main(hub: Path, name: str, texts: list[Path]) -> None:
    vocabulary = {piece: at for at, piece in enumerate([UNKNOWN, *pieces(texts)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S{1,6}"), behavior="removed", invert=True)
    tokenizer.decoder = decoders.WordPiece(prefix="\0", cleanup=False)  # joined by spaces
    root = hub / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    snapshot.mkdir(parents=True, exist_ok=True)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(COMMIT)
    tokenizer.save(str(snapshot / "tokenizer.json"))
    (snapshot / "tokenizer_config.json").write_text(json.dumps(CONFIG))
    (snapshot / "config.json").write_text(json.dumps({"model_type": "llama"}))
    print(snapshot)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [Path(text) for text in sys.argv[3:]])
