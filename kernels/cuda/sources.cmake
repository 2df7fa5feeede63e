# What is compiled for the device; tests compile it for the processor, too.
set(muster_cuda_kernels
  add.cu attention.cu attention_backward.cu batch_norm.cu convolution.cu dropout.cu embedding.cu gelu.cu
  layer_norm.cu linear.cu linear_weights.cu pooling.cu scale.cu softmax.cu)
