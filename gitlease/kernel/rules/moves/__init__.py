"""Operations, the table of transitions that carries them out, and their audit."""
