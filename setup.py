"""Add to pyproject.toml the requirements that depend on the environment, and refuse an install without data."""

import json
import re
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution

PACKAGE_VARIANTS = Path(__file__).parent / "workflow/package_variants.py"


class Study(Distribution):
    """The distribution of pyproject.toml, whose extra `gpu` gets the CuPy that fits torch."""

    def parse_config_files(self, *args, **kwargs):
        super().parse_config_files(*args, **kwargs)
        # -I, because pip hides the environment's packages from a build.
        command = [sys.executable, "-I", str(PACKAGE_VARIANTS)]
        variants = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        cupy = [variants["cupy"]] if variants["cupy"] else []
        self.extras_require = {**self.extras_require, "gpu": [*self.extras_require["gpu"], *cupy]}
        requirements = [str(text) for text in self.install_requires]
        for name, installed in variants["installed"].items():
            requirements = [re.sub(rf"^{name}(?![\w-])", installed, text) for text in requirements]
        self.install_requires = requirements
        self.metadata.install_requires, self.metadata.extras_require = requirements, self.extras_require


class RefusedWheel(bdist_wheel):
    """Refuse a wheel: it would have the code without the data and the workflow."""

    def run(self):
        sys.exit("error: the study runs from its folder: git clone it, then pip install -e . there (with -e)")


setup(distclass=Study, cmdclass={"bdist_wheel": RefusedWheel})
