"""A linear power model of Triton's backend for Python.

watts = 100 + 2 * usage; NaN if the usage is over 90
"""

import os
import sys

# The embedded Python does not know the packages that are installed beside Triton.
sys.path.append(os.environ["MODEL_PACKAGES"])

import numpy
import triton_python_backend_utils as backend


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    @staticmethod
    def answer(request):
        usage = backend.get_input_tensor_by_name(request, "usage").as_numpy()[:, :1]
        watts = numpy.where(usage > 90, numpy.nan, 100 + 2 * usage).astype(numpy.float32)
        return backend.InferenceResponse([backend.Tensor("std", numpy.ones_like(watts)), backend.Tensor("power", watts)])
