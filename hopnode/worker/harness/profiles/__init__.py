"""Wire formats between the harness and a model; format only, never rules."""
