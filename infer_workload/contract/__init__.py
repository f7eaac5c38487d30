"""The requests and views of CloudMatrix-Infer's API, as documents on the wire."""
