// SPDX-License-Identifier: Apache-2.0
//
// Values of the congestion controls of a queue pair, step by step.
#include "pmd/softroce/congestion.h"

#include <gtest/gtest.h>

namespace sluice::rdma::softroce {
namespace {

TEST(Window, a_spurious_timeout_is_undone_once) {
  CongestionWindow window;
  window.open(256);
  window.on_timeout();
  window.on_timeout();
  EXPECT_TRUE(window.after_timeout());
  EXPECT_TRUE(window.undoes_timeout(49, 100));
  EXPECT_EQ(window.packets(), CongestionWindow::kInitial);
  window.on_acknowledged(100);
  EXPECT_EQ(window.packets(), 164u) << "in slow start, as before the timeout";
  EXPECT_FALSE(window.after_timeout());
  window.on_timeout();
  EXPECT_FALSE(window.undoes_timeout(50, 100));
  EXPECT_EQ(window.packets(), CongestionWindow::kMin);
}

constexpr std::uint64_t kStart = 1'000'000;

TEST(CongestionWindowNumbers, slow_start_ends_at_the_threshold_and_then_it_is_one_packet_a_round_trip) {
  CongestionWindow window;
  window.open(256);
  window.on_timeout();  // threshold 32
  EXPECT_EQ(window.packets(), 2u);
  window.on_acknowledged(29);
  EXPECT_EQ(window.packets(), 31u);
  window.on_acknowledged(1);
  EXPECT_EQ(window.packets(), 32u);
  window.on_acknowledged(31);
  EXPECT_EQ(window.packets(), 32u);
  window.on_acknowledged(1);
  EXPECT_EQ(window.packets(), 33u);
  window.on_acknowledged(40);  // seven of them count for the next round
  EXPECT_EQ(window.packets(), 34u);
  window.on_acknowledged(26);
  EXPECT_EQ(window.packets(), 34u);
  window.on_acknowledged(1);
  EXPECT_EQ(window.packets(), 35u);
}

TEST(CongestionWindowNumbers, it_stays_between_its_least_and_what_the_receiver_takes) {
  CongestionWindow window;
  window.open(70);
  window.on_acknowledged(100);
  EXPECT_EQ(window.packets(), 70u);
  window.on_acknowledged(1000);
  EXPECT_EQ(window.packets(), 70u);
  window.open(1);
  EXPECT_EQ(window.packets(), CongestionWindow::kMin);
  window.on_loss();
  EXPECT_EQ(window.packets(), CongestionWindow::kMin);
  window.open(64);
  EXPECT_EQ(window.packets(), 64u);
}

TEST(CongestionWindowNumbers, loss_forgets_the_progress_of_its_round) {
  for (const bool timeout : {false, true}) {
    CongestionWindow window;
    window.open(256);
    window.on_loss();  // 32, without slow start
    window.on_acknowledged(31);
    timeout ? window.on_timeout() : window.on_loss();
    if (timeout) window.on_acknowledged(14);
    ASSERT_EQ(window.packets(), 16u);
    window.on_acknowledged(15);
    EXPECT_EQ(window.packets(), 16u);
    window.on_acknowledged(1);
    EXPECT_EQ(window.packets(), 17u);
  }
}

TEST(CongestionWindowNumbers, opening_starts_anew) {
  CongestionWindow window;
  window.open(256);
  window.on_loss();
  window.on_acknowledged(31);
  window.open(128);
  EXPECT_EQ(window.packets(), 64u);
  window.on_acknowledged(10);  // slow start again
  EXPECT_EQ(window.packets(), 74u);
}

/// Charges a packet and returns whether a notification for it cuts the rate.
bool notify(CongestionRate& rate, std::uint64_t now_ns) {
  rate.charge(0, now_ns);
  return rate.on_notification(now_ns);
}

TEST(CongestionRateNumbers,
     the_first_notification_halves_the_line_rate_and_the_next_counts_after_an_interval) {
  CongestionRate rate;
  notify(rate, kStart);
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), 6.25);
  notify(rate, kStart + CongestionRate::kCutIntervalNs - 1);
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), 6.25);
  notify(rate, kStart + CongestionRate::kCutIntervalNs);
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), 3.125);
}

TEST(CongestionRateNumbers, a_quiet_interval_makes_the_next_cut_smaller) {
  CongestionRate rate;
  notify(rate, kStart);
  notify(rate, kStart + CongestionRate::kAlphaIntervalNs);
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), 6.25 * (1 - 15.0 / 16 / 2));
  CongestionRate later;
  notify(later, kStart);
  notify(later, kStart + 2 * CongestionRate::kAlphaIntervalNs);
  EXPECT_DOUBLE_EQ(later.bytes_per_ns(), 6.25 * (1 - 15.0 / 16 * 15 / 16 / 2));
  // The cut itself moves alpha half way back: (15/16)(15/16) + 1/16.
  const double before = later.bytes_per_ns();
  notify(later, kStart + 2 * CongestionRate::kAlphaIntervalNs + CongestionRate::kCutIntervalNs);
  EXPECT_DOUBLE_EQ(later.bytes_per_ns(), before * (1 - (15.0 / 16 * 15 / 16 * 15 / 16 + 1.0 / 16) / 2));
}

TEST(CongestionRateNumbers, five_halvings_of_the_gap_and_then_steps_until_the_line_rate_is_back) {
  CongestionRate rate;
  notify(rate, kStart);
  std::uint64_t now = kStart;
  EXPECT_EQ(rate.wait_until(now + CongestionRate::kIncreaseIntervalNs - 1), 0u);
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), 6.25);
  double gap = 6.25;
  for (int step = 0; step < CongestionRate::kFastRecoverySteps; ++step) {
    rate.wait_until(now += CongestionRate::kIncreaseIntervalNs);
    EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), CongestionRate::kDefaultLineRate - (gap /= 2)) << step;
  }
  EXPECT_TRUE(rate.limited());
  rate.wait_until(now += CongestionRate::kIncreaseIntervalNs);  // the target rises by 6 * 0.05
  EXPECT_FALSE(rate.limited());
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), CongestionRate::kDefaultLineRate);
}

TEST(CongestionRateNumbers, recovery_aims_at_the_rate_before_the_cut_and_rises_beyond_in_growing_steps) {
  CongestionRate rate;
  notify(rate, kStart);
  std::uint64_t now = kStart + CongestionRate::kCutIntervalNs;
  notify(rate, now);  // from 6.25 to 3.125
  double expected = 3.125;
  double target = 6.25;
  for (int step = 1; step <= 8; ++step) {
    if (step > CongestionRate::kFastRecoverySteps) target += CongestionRate::kAdditiveStep * step;
    expected = (expected + target) / 2;
    rate.wait_until(now += CongestionRate::kIncreaseIntervalNs);
    EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), expected) << step;
  }
}

TEST(CongestionRateNumbers, a_cut_begins_recovery_anew) {
  CongestionRate rate;
  notify(rate, kStart);
  std::uint64_t now = kStart;
  for (int step = 0; step < 3; ++step) rate.wait_until(now += CongestionRate::kIncreaseIntervalNs);
  notify(rate, now += CongestionRate::kCutIntervalNs);
  double expected = rate.bytes_per_ns();
  const double target = CongestionRate::kDefaultLineRate - 6.25 / 8;
  for (int step = 0; step < CongestionRate::kFastRecoverySteps; ++step) {
    rate.wait_until(now += CongestionRate::kIncreaseIntervalNs);
    EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), expected = (expected + target) / 2) << step;
  }
}

TEST(CongestionRateNumbers, it_is_never_cut_below_its_least) {
  CongestionRate rate;
  for (int cut = 0; cut < 20; ++cut)
    notify(rate, kStart + static_cast<std::uint64_t>(cut) * CongestionRate::kCutIntervalNs);
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), CongestionRate::kMinRate);
}

TEST(CongestionRateNumbers, packets_wait_for_the_time_that_those_before_take) {
  CongestionRate rate;
  rate.charge(1'000'000, kStart);  // the rate is not limited yet
  notify(rate, kStart);
  EXPECT_EQ(rate.wait_until(kStart), 0u);
  rate.charge(6250, kStart);
  EXPECT_EQ(rate.wait_until(kStart), kStart + 1000);
  rate.charge(625, kStart + 10);
  EXPECT_EQ(rate.wait_until(kStart + 10), kStart + 1100);
  EXPECT_EQ(rate.wait_until(kStart + 1099), kStart + 1100);
  EXPECT_EQ(rate.wait_until(kStart + 1100), 0u);
  rate.charge(625, kStart + 5000);  // idle time does not accumulate credit
  EXPECT_EQ(rate.wait_until(kStart + 5000), kStart + 5100);
}

TEST(CongestionRateNumbers, what_was_sent_under_an_earlier_limit_is_no_debt_under_the_next) {
  CongestionRate rate;
  notify(rate, kStart);
  rate.charge(1'000'000'000, kStart);  // 160 ms at 6.25 bytes a nanosecond
  const std::uint64_t free = kStart + 6 * CongestionRate::kIncreaseIntervalNs;
  EXPECT_EQ(rate.wait_until(free), 0u);  // the line rate is back
  ASSERT_FALSE(rate.limited());
  notify(rate, free + 1000);
  EXPECT_EQ(rate.wait_until(free + 1000), 0u);
  rate.charge(6250, free + 1000);
  EXPECT_EQ(rate.wait_until(free + 1000), free + 2000);
}

TEST(CongestionRateNumbers, it_begins_at_the_rate_of_the_link_if_that_is_known) {
  EXPECT_DOUBLE_EQ(CongestionRate::of_link(25'000), 3.125);
  EXPECT_DOUBLE_EQ(CongestionRate::of_link(0), 12.5);
  EXPECT_DOUBLE_EQ(CongestionRate::of_link(0xFFFFFFFF), 12.5);  // RTE_ETH_SPEED_NUM_UNKNOWN
  CongestionRate rate;
  rate.open(CongestionRate::of_link(25'000));
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), 3.125);
  notify(rate, kStart);
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), 3.125 / 2);
  for (std::uint64_t now = kStart;
       rate.limited() && now < kStart + 100 * CongestionRate::kIncreaseIntervalNs;)
    rate.wait_until(now += CongestionRate::kIncreaseIntervalNs);
  EXPECT_DOUBLE_EQ(rate.bytes_per_ns(), 3.125);
}

/// Notifications have no sequence number, so any host can forge them.
TEST(CongestionRateNumbers, a_notification_counts_once_for_packets_sent_since_the_last_one) {
  CongestionRate rate;
  std::uint64_t now = kStart;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(rate.on_notification(now += CongestionRate::kCutIntervalNs));
  EXPECT_FALSE(rate.limited());
  rate.charge(64, now);
  int cuts = 0;
  for (int i = 0; i < 100; ++i) cuts += rate.on_notification(now += CongestionRate::kCutIntervalNs);
  EXPECT_EQ(cuts, 1);
}

TEST(RoundTripNumbers, the_timeout_is_the_mean_and_four_variations) {
  RoundTrip trip;
  trip.open(1'000'000'000);
  trip.sample(10'000'000);
  EXPECT_EQ(trip.timeout_ns(), 30'000'000u);
  trip.sample(20'000'000);
  EXPECT_EQ(trip.timeout_ns(), 36'250'000u);
  trip.sample(1'250'000);
  EXPECT_EQ(trip.timeout_ns(), 38'750'000u);
  trip.on_timeout();
  EXPECT_EQ(trip.timeout_ns(), 77'500'000u);
  trip.on_timeout();
  EXPECT_EQ(trip.timeout_ns(), 155'000'000u);
  trip.open(1'000'000'000);
  EXPECT_EQ(trip.timeout_ns(), 250'000'000u);
}

TEST(RoundTripNumbers, doubling_has_an_end_and_the_least_timeout_holds) {
  RoundTrip trip;
  trip.open(10'000'000'000'000);
  trip.sample(1000);
  EXPECT_EQ(trip.timeout_ns(), RoundTrip::kMinTimeoutNs);
  for (int i = 0; i < 12; ++i) trip.on_timeout();
  EXPECT_EQ(trip.timeout_ns(), RoundTrip::kMinTimeoutNs << 12);
  trip.on_timeout();
  EXPECT_EQ(trip.timeout_ns(), RoundTrip::kMinTimeoutNs << 12);
  trip.open(1);
  trip.on_timeout();
  EXPECT_EQ(trip.timeout_ns(), RoundTrip::kMinTimeoutNs);
}

/// Without this, a peer whose answers always take longer than the timeout would cause a timeout for each
/// answer.
TEST(RoundTripNumbers, a_doubled_timeout_stays_until_the_next_sample) {
  RoundTrip trip;
  trip.open(1'000'000'000);
  trip.sample(1'000'000);
  trip.on_timeout();
  EXPECT_EQ(trip.timeout_ns(), 6'000'000u);
  EXPECT_EQ(trip.timeout_ns(), 6'000'000u);
  trip.sample(1'000'000);
  EXPECT_EQ(trip.timeout_ns(), 2'500'000u);
}

TEST(RoundTripNumbers, a_probe_is_due_after_two_round_trips_and_none_without_a_measured_one) {
  RoundTrip trip;
  trip.open(1'000'000'000);
  EXPECT_EQ(trip.probe_ns(), trip.timeout_ns());
  trip.sample(1'000'000);
  EXPECT_EQ(trip.probe_ns(), 2'500'000u);  // two round trips and a variation
  EXPECT_LT(trip.probe_ns(), trip.timeout_ns());
  trip.on_timeout();
  EXPECT_EQ(trip.probe_ns(), trip.timeout_ns());
  for (int i = 0; i < 100; ++i) trip.sample(10);
  EXPECT_EQ(trip.probe_ns(), RoundTrip::kMinProbeNs);
}

}  // namespace
}  // namespace sluice::rdma::softroce
