import java.sql.*;
import java.util.*;

/** What a JDBC tool asks for: tables, columns, keys, indexes, prepared statements, cursors, the simple protocol. */
public class Jdbc {
    public static void main(String[] args) throws Exception {
        Properties user = new Properties();
        user.setProperty("user", "ann");
        try (Connection con = DriverManager.getConnection(args[0], user)) {
            DatabaseMetaData meta = con.getMetaData();
            String[] kinds = {"TABLE", "VIEW", "MATERIALIZED VIEW"};
            TreeSet<String> tables = new TreeSet<>();
            try (ResultSet rows = meta.getTables(null, "public", "_", kinds)) {
                while (rows.next()) tables.add(rows.getString("TABLE_NAME") + " " + rows.getString("TABLE_TYPE"));
            }
            tables.forEach(System.out::println);
            try (ResultSet rows = meta.getColumns(null, "public", "t", null)) {
                while (rows.next())
                    System.out.println(rows.getString("COLUMN_NAME") + " " + rows.getString("TYPE_NAME") + " " + rows.getInt("NULLABLE"));
            }
            try (ResultSet rows = meta.getPrimaryKeys(null, "public", "t")) {
                while (rows.next()) System.out.println("key " + rows.getString("COLUMN_NAME"));
            }
            TreeSet<String> indexes = new TreeSet<>();
            try (ResultSet rows = meta.getIndexInfo(null, "public", "t", false, false)) {
                while (rows.next()) indexes.add("index " + rows.getString("INDEX_NAME") + " " + !rows.getBoolean("NON_UNIQUE"));
            }
            indexes.forEach(System.out::println);
            String name = null;
            try (PreparedStatement read = con.prepareStatement("SELECT name FROM t WHERE id = ?")) {
                for (int n = 0; n < 8; n++) { // binary from the sixth on
                    read.setInt(1, 1);
                    try (ResultSet rows = read.executeQuery()) { rows.next(); name = rows.getString(1); }
                }
            }
            System.out.println("extended " + name);
            con.setAutoCommit(false);
            int count = 0;
            try (Statement read = con.createStatement()) {
                read.setFetchSize(3);
                try (ResultSet rows = read.executeQuery("SELECT i FROM range(10) AS r(i)")) { while (rows.next()) count++; }
            }
            con.commit();
            System.out.println("cursor " + count);
        }
        user.setProperty("preferQueryMode", "simple");
        try (Connection con = DriverManager.getConnection(args[0], user);
             Statement read = con.createStatement();
             ResultSet rows = read.executeQuery("SELECT count(*) FROM t")) {
            rows.next();
            System.out.println("simple " + rows.getInt(1));
        }
    }
}
