"""The process runtime: actors, compressor, distillers and learners side by side."""
