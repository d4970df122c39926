// The header of the artifact of test_header.py: arguments and results by name, and what is refused.
#include <cstdio>
#include <cstring>
#include <memory>

#include "typed.hpp"

namespace step = artifact::step;

static int failures = 0;
#define CHECK(condition) \
  if (!(condition)) ++failures, std::printf("line %d: %s\n", __LINE__, #condition)

template <typename Body>
static void fails(int line, disc_code code, int64_t argument, const char* message, const Body& body) {
  try {
    body();
    ++failures, std::printf("line %d: nothing is thrown\n", line);
  } catch (const disc::Error& error) {
    if (error.code == code && error.argument == argument && std::strstr(error.what(), message) != nullptr) return;
    ++failures, std::printf("line %d: code %d, argument %d: %s\n", line, static_cast<int>(error.code),
                            static_cast<int>(error.argument), error.what());
  }
}
#define FAILS(code, argument, message, ...) fails(__LINE__, code, argument, message, [&] { __VA_ARGS__; })

int main(int, char** argv) {
  const step::Program program(argv[1]);
  CHECK(program.name() == "step" && program.target().substr(0, 6) == "x86-64");

  const std::vector<float> w(12, 2.0f), x = {1, 2, 3, 4, 5, 6};
  const std::vector<disc::BFloat16> half(3, disc::BFloat16{0x3f80});
  const int32_t n = 7;
  const bool flags[] = {true, false};
  step::Arguments given;
  given.params_w = {w, {3, 4}};
  given.params_class = {half, {3}};
  given.x = {x, {2, 3}};
  given.args_3 = {flags, {2}};
  given.k = {&n, {}};
  const step::Results results = program(given);
  CHECK((results.result_0.sizes() == std::array<int64_t, 2>{2, 4}) && results.result_0.size() == 8);
  CHECK(results.result_0[0] == 12 && results.result_0[7] == 30);
  CHECK(results.result_1.size() == 1 && *results.result_1.data() == 14 && results.result_1.sizes().empty());
  CHECK(results.result_2.size() == 3 && results.result_2[2].bits == 0x4000);
  CHECK(!results.result_3[0] && results.result_3[1]);

  // Memory of results is used again, until it is too small.
  step::Results kept;
  program.run(given, kept);
  const float* const first = kept.result_0.data();
  const std::vector<float> short_x = {1, 1, 1}, long_x(3000, 1.0f);
  const std::unique_ptr<bool[]> many(new bool[1000]());
  step::Arguments other = given;
  other.x = {short_x, {1, 3}};
  other.args_3 = {many.get(), {1}};
  program.run(other, kept);
  CHECK(kept.result_0.data() == first && kept.result_0.size() == 4 && kept.result_0[3] == 6);
  program.run(given, kept);
  CHECK(kept.result_0.data() == first && kept.result_0.size() == 8);
  other.x = {long_x, {1000, 3}};
  other.args_3 = {many.get(), {1000}};
  program.run(other, kept);
  CHECK(kept.result_0.size() == 4000 && kept.result_0[3999] == 6);
  const step::Results moved = std::move(kept);
  CHECK(moved.result_0.size() == 4000 && kept.result_0.size() == 0);

  // Memory of the caller.
  alignas(64) float own[8];
  step::Results there;
  there.result_0 = {own, 8};
  program.run(given, there);
  CHECK(there.result_0.data() == own && own[7] == 30);
  FAILS(DISC_TOO_SMALL, -1, "its memory has 32", program.run(other, there));
  CHECK(there.result_0.data() == own);

  FAILS(DISC_SIZE, -1, "6 elements are no array of sizes [3, 3]", given.x = (disc::Array<float, 2>{x, {3, 3}}));
  FAILS(DISC_SIZE, -1, "6 elements are no array of sizes [-2, -3]",
        given.x = (disc::Array<float, 2>{x, {-2, -3}}));
  FAILS(DISC_SIZE, -1, "no array of sizes", given.x = (disc::Array<float, 2>{x, {INT64_MAX, INT64_MAX}}));
  step::Arguments wrong = given;
  wrong.x = {x, {3, 2}};
  FAILS(DISC_SIZE, 2, "dimension 1 is 2, the program takes 3", program(wrong));
  FAILS(DISC_FILE, -1, "nowhere.disc: No such file", step::Program("nowhere.disc"));
  FAILS(DISC_MISUSE, -1, "which is of another artifact", step::Program(std::string(argv[2])));
  FAILS(DISC_MISUSE, -1, "has 1 arguments, its header 5", step::Program(std::string(argv[3])));
  std::printf("%d failures\n", failures);
  return failures != 0;
}
