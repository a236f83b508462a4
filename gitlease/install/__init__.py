"""What is installed beside what others own, and taken out to the byte."""
