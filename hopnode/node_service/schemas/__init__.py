"""The JSON of the HTTP contract, as pydantic models. Holds no rules of its own."""
