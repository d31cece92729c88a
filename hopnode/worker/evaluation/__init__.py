"""How well a collection is searched: question sets, runs over the real search, figures with intervals, and comparisons."""
