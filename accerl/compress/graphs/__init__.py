"""Graphs: networks as ONNX or torch payloads."""
