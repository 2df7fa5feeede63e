// The peer of gpt_bench: the same GPT by llm.c's program for processors, which is included from a
// directory that tests/bench/run fetches. Prints `tokens_per_second X peak_rss_mib Y`.
//   gpt_llm_c --shape LAYERS-HEADS-WIDTH-CONTEXT[-TOKENS] --batch 4 [--seconds 5]
// Per step: random contexts, forward, backward, AdamW. llm.c does not clip gradients there, so it
// does less. Threads by OMP_NUM_THREADS.
#define TESTING  // without its own main
#include "train_gpt2.c"

#include <sys/resource.h>

enum { kWarmUp = 3, kPaddedTo = 128 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void fill(float* values, size_t count, float from, float to) {
  for (size_t i = 0; i < count; ++i) {
    values[i] = from + (to - from) * (float)rand() / (float)RAND_MAX;
  }
}

/// With random weights; as gpt2_build_from_checkpoint leaves it.
static void build(GPT2* model, GPT2Config config) {
  memset(model, 0, sizeof *model);
  model->config = config;
  fill_in_parameter_sizes(model->param_sizes, config);
  for (int i = 0; i < NUM_PARAMETER_TENSORS; ++i) model->num_parameters += model->param_sizes[i];
  model->params_memory = malloc_and_point_parameters(&model->params, model->param_sizes);
  fill(model->params_memory, model->num_parameters, -0.035f, 0.035f);  // variance of GPT-2's start
  const size_t layers = (size_t)config.num_layers, width = (size_t)config.channels;
  fill(model->params.ln1w, layers * width, 1, 1);
  fill(model->params.ln2w, layers * width, 1, 1);
  fill(model->params.lnfw, width, 1, 1);
}

int main(int argc, char** argv) {
  GPT2Config config = {0};
  int batch = 4, tokens = 256;
  double seconds = 5, start = 0, end = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--shape") == 0) {
      sscanf(argv[i + 1], "%d-%d-%d-%d-%d", &config.num_layers, &config.num_heads, &config.channels,
             &config.max_seq_len, &tokens);
    } else if (strcmp(argv[i], "--batch") == 0) {
      batch = atoi(argv[i + 1]);
    } else if (strcmp(argv[i], "--seconds") == 0) {
      seconds = atof(argv[i + 1]);
    }
  }
  if (config.max_seq_len == 0 || batch < 1) {
    fprintf(stderr, "gpt_llm_c: needs --shape LAYERS-HEADS-WIDTH-CONTEXT[-TOKENS] --batch N\n");
    return 2;
  }
  config.vocab_size = tokens;
  config.padded_vocab_size = (tokens + kPaddedTo - 1) / kPaddedTo * kPaddedTo;
  GPT2 model;
  build(&model, config);
  const int context = config.max_seq_len, count = batch * context;
  int* inputs = mallocCheck((size_t)count * sizeof *inputs);
  int* targets = mallocCheck((size_t)count * sizeof *targets);
  int steps = 0;
  do {
    for (int i = 0; i < count; ++i) {
      inputs[i] = rand() % tokens;
      targets[i] = rand() % tokens;
    }
    gpt2_forward(&model, inputs, targets, (size_t)batch, (size_t)context);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f, ++steps);
    end = now();
    if (steps == kWarmUp) start = end;
  } while (steps <= kWarmUp || end - start < seconds);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("tokens_per_second %.0f peak_rss_mib %.1f\n",
         (steps - kWarmUp) * (double)count / (end - start), (double)usage.ru_maxrss / 1024);
  return 0;
}
