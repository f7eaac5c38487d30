"""The version that this server reports."""

VERSION = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+cloudmatrix",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "python",
    "platform": "any",
}
