def evaluate(output, reference):
    return output == reference
