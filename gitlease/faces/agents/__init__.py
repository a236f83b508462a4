"""The hooks of coding agents: an event in, a decision out.

Every host has its module, which reads its events into one form and writes our answer in its shape;
``handling`` is the same for all.
"""
