"""A deliberate breakage: one place of the source changed so that a promise is broken, and the test program that must fail."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Breakage:
    name: str  # what is broken, as a sentence
    file: str  # from the root of the project
    right: str  # stands once in the file
    wrong: str  # takes its place
    test: str  # target that must fail; it is run until its first failure
