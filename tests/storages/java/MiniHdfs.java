// SPDX-License-Identifier: Apache-2.0
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** Runs an HDFS of one data node until standard input ends: MiniHdfs DIRECTORY STORE, which becomes /store. */
public final class MiniHdfs {
    private MiniHdfs() {
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
        try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build()) {
            cluster.waitActive();
            cluster.getFileSystem().copyFromLocalFile(new Path(arguments[1]), new Path("/store"));
            System.out.println("serves " + cluster.getNameNodePort());
            while (System.in.read() >= 0) {
                // until nobody needs it any more
            }
        }
        System.exit(0);
    }
}
