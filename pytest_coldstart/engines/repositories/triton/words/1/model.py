"""Says the prompt's words again, in turn, one response a word. Triton's Python backend runs it, not this package."""

import itertools

import numpy
import triton_python_backend_utils as triton


def _value(request, name):
    return triton.get_input_tensor_by_name(request, name).as_numpy().ravel()[0]


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            words = _value(request, "text_input").decode("utf-8", "replace").split() or ["nothing"]
            sender = request.get_response_sender()
            for word in itertools.islice(itertools.cycle(words), int(_value(request, "max_tokens"))):
                text = numpy.array([f"{word} ".encode()], dtype=object)
                sender.send(triton.InferenceResponse([triton.Tensor("text_output", text)]))
            sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
