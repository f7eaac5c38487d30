"""Preprocessing of CEL expressions: rewrites syntax of Kubernetes' CEL that cel-python's grammar lacks.

Optional selections (`a.?b`, `a[?k]`) and namespaced functions (`sets.contains`, `optional.of`, `format.dns1123Label`)
become plain calls; trailing commas in literals are removed. String literals and comments are not changed. `cel.bind`
and optional entries in literals are not supported and remain syntax errors.
"""

import re

QUOTED = re.compile(r"""(?://[^\n]*|[rR]?(?:'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))""", re.S)
NAMESPACED = re.compile(r"(?<![\w.])(sets|optional|format|ip(?=\s*\.\s*isCanonical\b))\s*\.\s*([A-Za-z]\w*)\s*\(")
SELECTED = re.compile(r"\.\?(\w+)((?:\.\w+\b(?!\s*\())*)")
TRAILING = re.compile(r"([^\s\[{(,]\s*),(?=\s*[\]}])")
INDEXED = re.compile(r"\[\?([^\[\]]+)\]")


def rewrite_syntax(expression: str) -> str:
    """Rewrite the expression for the engine's grammar, leaving string literals and comments unchanged."""
    if "?" not in expression and not NAMESPACED.search(expression) and not TRAILING.search(expression):
        return expression
    kept: list[str] = []

    def hide(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"__quoted_{len(kept) - 1}__"

    text = QUOTED.sub(hide, expression)
    text = NAMESPACED.sub(lambda match: f"{match[1]}_{match[2]}(", text)
    text = SELECTED.sub(_selections, text)
    text = TRAILING.sub(r"\1", text)
    text = INDEXED.sub(lambda match: f".optIndex({match[1]})", text)
    return re.sub(r"__quoted_(\d+)__", lambda match: kept[int(match[1])], text)


def _selections(match: re.Match[str]) -> str:
    """`.?a.b` selects b optionally too, as does every selection after the first optional one."""
    names = [match[1], *match[2].split(".")[1:]]
    return "".join(f'.optSelect("{name}")' for name in names)
