"""`python -m helpers.preflight`: what works on this machine, without Jupyter."""

from helpers.preflight import paragraph, preflight

findings = preflight()
print(paragraph(findings), *(f"- {finding}" for finding in findings), sep="\n")
