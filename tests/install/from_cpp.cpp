// from_cpp.cpp - the installed headers and library from C++: names are C's, structs are filled, statuses come back.
#include <hark/hark.h>

#include <cstdio>
#include <cstring>

int main() {
  hark_context_options options = hark_context_options();
  options.struct_size = sizeof options;
  options.threads = 1;
  hark_context *context = nullptr;
  if (hark_context_create(&options, &context) != HARK_OK) return 1;
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = desc.heads = 1;
  desc.query_length = desc.key_length = 4;
  desc.head_dim = 8;
  const bool supported = hark_attention_supports(context, &desc) == HARK_OK;
  int count = 0;
  hark_operators(&count);
  const bool named = hark_op_linear.name != nullptr && std::strcmp(hark_op_linear.name, "linear") == 0;
  std::printf("hark %s (%s), %d operators\n", hark_version(), hark_context_backend(context), count);
  hark_context_destroy(&context);
  return supported && named && count > 0 && std::strcmp(hark_version(), HARK_VERSION_STRING) == 0 ? 0 : 1;
}
