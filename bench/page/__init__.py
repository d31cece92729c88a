"""The parts of docs/benchmarks.md, each written from the reports of a measurement. Nothing is measured here."""
