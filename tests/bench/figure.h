// SPDX-License-Identifier: Apache-2.0
//
// How a benchmark program measures figures and prints them: NAME... chooses, --list names them. One line of
// JSON each, medians of kRuns runs, with a baseline of the same runs.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace sluice::bench {

inline constexpr int kRuns = 5;

inline void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Sample {
  double value = 0;
  double baseline = 0;
};

struct Figure {
  const char* name;
  const char* unit;
  double goal;
  Sample (*measure)();
};

inline void print_figure(const Figure& figure) {
  std::vector<double> values;
  std::vector<double> baselines;
  for (int run = 0; run < kRuns; ++run) {
    const Sample sample = figure.measure();
    values.push_back(sample.value);
    baselines.push_back(sample.baseline);
  }
  const double value = median(values);
  const double baseline = median(baselines);
  std::printf(
      "{\"figure\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"baseline\": %.4g, \"ratio\": %.3g, "
      "\"goal\": %g}\n",
      figure.name, value, figure.unit, baseline, value / baseline, figure.goal);
  std::fflush(stdout);
}

inline int print_figures(std::span<const Figure> figures, int argc, char** argv) {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  for (const Figure& figure : figures) {
    if (wanted == std::vector<std::string>{"--list"})
      std::puts(figure.name);
    else if (wanted.empty() || std::find(wanted.begin(), wanted.end(), figure.name) != wanted.end())
      print_figure(figure);
  }
  return 0;
}

}  // namespace sluice::bench
