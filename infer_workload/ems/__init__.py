"""The elastic memory service: context cache and model cache. Access times come from `timing`."""
