"""Named experiments, one module a lesson: which variants run on which cases, and what each case costs."""
