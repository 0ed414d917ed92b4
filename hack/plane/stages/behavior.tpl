(.metadata.annotations["kwok.ganglion.dev/behavior"] // ((.spec.nodeName // "") | split(".")[0]))
