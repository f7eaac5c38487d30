"""The serving engine in virtual time: requests, prefill instances, decode pool, KV transfers. It reads no clock and no
database."""
