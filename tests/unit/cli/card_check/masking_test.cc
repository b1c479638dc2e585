// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/masking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <random>
#include <string>

namespace sluice::card_check {
namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

Gid ipv4(std::uint8_t last) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last};
}

TEST(Masking, hides_every_form_of_random_identities_wherever_they_are) {
  std::mt19937_64 random(4711);
  for (int round = 0; round < 200; ++round) {
    Masking masking;
    std::vector<std::vector<std::string>> identities;
    Gid gid;
    for (std::uint8_t& byte : gid) byte = static_cast<std::uint8_t>(random());
    std::array<std::uint8_t, 6> mac;
    for (std::uint8_t& byte : mac) byte = static_cast<std::uint8_t>(random());
    identities.push_back(forms_of_gid(gid));
    identities.push_back(forms_of_gid(ipv4(static_cast<std::uint8_t>(random()))));
    identities.push_back(forms_of_guid(random() | 1));
    identities.push_back(forms_of_mac(mac));
    for (const auto& forms : identities) masking.add(forms);
    for (const auto& forms : identities)
      for (const std::string& form : forms)
        for (const std::string& shown : {form, upper(form)}) {
          const Json value = {{"enx" + shown, Json::array({Json("at " + shown + ", port 1")})}};
          EXPECT_EQ(masking.masked(value).dump().find(shown), std::string::npos) << shown;
        }
  }
}

TEST(Masking, equal_identities_have_equal_hashes_within_a_report_only) {
  Masking one;
  Masking other;
  for (Masking* const masking : {&one, &other}) {
    masking->add(forms_of_gid(ipv4(1)));
    masking->add(forms_of_gid(ipv4(2)));
  }
  EXPECT_EQ(one.masked_text("192.0.2.1"), one.masked_text("::ffff:192.0.2.1"));
  EXPECT_NE(one.masked_text("192.0.2.1"), one.masked_text("192.0.2.2"));
  EXPECT_NE(one.masked_text("192.0.2.1"), other.masked_text("192.0.2.1"));
}

TEST(Masking, leaves_other_text_as_it_is) {
  Masking masking;
  masking.add(forms_of_gid(ipv4(1)));
  for (const char* const text : {"", "192.0.2.12", "2192.0.2.1", "firmware 22.39.1002", "\xFF\xFE"})
    EXPECT_EQ(masking.masked_text(text), text);
}

}  // namespace
}  // namespace sluice::card_check
