"""Ways to choose the next action: driven by a language model, or without one."""
