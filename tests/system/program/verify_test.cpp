// A checkpoint that `verify` calls good is one that `run` takes.

#include <gtest/gtest.h>
#include <hdf5.h>

#include <filesystem>
#include <functional>
#include <string>

#include "caravan/io/hdf5.h"
#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

class VerifyTest : public ProgramTest {
 protected:
  /// As another program would write it: without a content hash, with what `change` puts in.
  std::string changed_model(const std::function<void(hid_t file)>& change) {
    const std::string path = folder_.file("changed.h5");
    std::filesystem::copy_file(model(), path, std::filesystem::copy_options::overwrite_existing);
    const io::Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    EXPECT_GE(file.get(), 0);
    EXPECT_GE(H5Adelete(file.get(), "content_hash"), 0);
    change(file.get());
    return path;
  }
};

TEST_F(VerifyTest, TakesACheckpointOfAnotherProgram) {
  const std::string path = changed_model([](hid_t) {});
  const ProcessResult verified = caravan({"verify", path});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_NE(verified.out.find("good"), std::string::npos) << verified.out;
}

TEST_F(VerifyTest, RefusesDefaultsThatARunRefuses) {
  const std::string path = changed_model([&](hid_t file) {
    const io::Hdf5Group group(H5Gopen2(file, "generation", H5P_DEFAULT));
    ASSERT_GE(H5Adelete(group.get(), "top_p"), 0);
    io::write_real_attribute(group.get(), "top_p", 7.0, {});
  });
  for (const Arguments& arguments :
       {Arguments{"verify", path}, Arguments{"run", "--model", path, "--prompt", "Hi"}}) {
    const ProcessResult result = caravan(arguments);
    EXPECT_EQ(result.code, 78) << result.err;
    EXPECT_NE(result.err.find(path + ": the sampling defaults of the checkpoint cannot be used: "
                                     "top_p must be above 0"),
              std::string::npos)
        << result.err;
  }
}

TEST_F(VerifyTest, RefusesALayoutWhoseTokensAreMissing) {
  const std::string path = changed_model([&](hid_t file) {
    const io::Hdf5Group group(H5Gopen2(file, "tokenizer", H5P_DEFAULT));
    ASSERT_GE(H5Adelete(group.get(), "chat_format"), 0);
    io::write_text_attribute(group.get(), "chat_format", "chatml", {});
  });
  for (const Arguments& arguments :
       {Arguments{"verify", path}, Arguments{"run", "--model", path, "--prompt", "Hi"}}) {
    const ProcessResult result = caravan(arguments);
    EXPECT_EQ(result.code, 78) << result.err;
    EXPECT_NE(result.err.find("chat format chatml needs the control token"), std::string::npos)
        << result.err;
  }
}

}  // namespace
}  // namespace caravan::test
