"""What is installed beside what others own, and taken out to the byte."""

from gitlease import exports

__getattr__ = exports(__name__)
