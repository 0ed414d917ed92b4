"""Serves linear power models with KServe's own server.

usage: kserve_models.py PORT

watts = 100 + 2 * usage; NaN if the usage is over 90
"""

import sys

import numpy
from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.errors import InvalidInput


class Power(Model):
    """Takes at most this many rows. A model without a datatype does not describe its inputs and outputs."""

    def __init__(self, name, most=None, datatype="FP64", rows=-1):
        super().__init__(name)
        self.most, self.datatype, self.rows, self.ready = most, datatype, rows, True

    async def get_input_types(self):
        return [{"name": "usage", "datatype": self.datatype, "shape": [self.rows, 3]}] if self.datatype else []

    async def get_output_types(self):
        return [{"name": name, "datatype": "FP64", "shape": [-1]} for name in ("std", "power")]

    def predict(self, request, headers=None, response_headers=None):
        [given] = request.inputs
        if self.datatype and (given.name, given.datatype) != ("usage", self.datatype):
            raise InvalidInput(f"the input is {given.name} of {given.datatype}")
        rows = given.as_numpy()
        if self.most and len(rows) > self.most:
            raise InvalidInput(f"at most {self.most} rows")
        watts = numpy.where(rows[:, 0] > 90, numpy.nan, 100 + 2 * rows[:, 0])
        outputs = [
            InferOutput("std", [len(rows)], "FP64", [1.0] * len(rows)),
            InferOutput("power", [len(rows)], "FP64", watts.tolist()),
        ]
        return InferResponse(response_id="1", model_name=self.name, infer_outputs=outputs)


models = [
    Power("power"),
    Power("narrow", most=4, datatype="FP32"),
    Power("single", most=1, datatype="FP32", rows=1),
    Power("plain", datatype=None),
]
ModelServer(http_port=int(sys.argv[1]), enable_grpc=False, workers=1).start(models)
