"""Tests of the exercises, one module a lesson."""
