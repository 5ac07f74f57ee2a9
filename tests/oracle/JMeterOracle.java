// Runs test plans in one JVM by JMeter's own engine. Each line of stdin is: plan TAB result file TAB name=value;name=value.
// After each plan it prints "done". A plan that fails to load prints its stack, and "failed".

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.jmeter.JMeter;
import org.apache.jmeter.control.ReplaceableController;
import org.apache.jmeter.engine.StandardJMeterEngine;
import org.apache.jmeter.gui.tree.JMeterTreeModel;
import org.apache.jmeter.gui.tree.JMeterTreeNode;
import org.apache.jmeter.reporters.ResultCollector;
import org.apache.jmeter.save.SaveService;
import org.apache.jmeter.services.FileServer;
import org.apache.jmeter.util.JMeterUtils;
import org.apache.jorphan.collections.HashTree;
import org.apache.jorphan.collections.SearchByClass;

public class JMeterOracle {
    public static void main(String[] arguments) throws Exception {
        JMeterUtils.setJMeterHome(arguments[0]);
        JMeterUtils.loadJMeterProperties(arguments[0] + "/bin/jmeter.properties");
        JMeterUtils.initLocale();
        SaveService.loadProperties();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", 3);
            for (String pair : parts[2].split(";")) {
                String[] named = pair.split("=", 2);
                JMeterUtils.setProperty(named[0], named[1]);
            }
            try {
                run(new File(parts[0]), parts[1]);
                System.out.println("done");
            } catch (Throwable error) {
                error.printStackTrace();
                System.out.println("failed");
            }
            System.out.flush();
        }
        System.exit(0);
    }

    /** As JMeter does without its windows: modules are replaced, disabled elements are taken out. */
    private static void run(File plan, String results) throws Exception {
        FileServer.getFileServer().closeFiles();
        FileServer.getFileServer().setBaseForScript(plan);
        HashTree tree = SaveService.loadTree(plan);
        JMeterTreeModel model = new JMeterTreeModel(new Object());
        JMeterTreeNode root = (JMeterTreeNode) model.getRoot();
        model.addSubTree(tree, root);
        SearchByClass<ReplaceableController> replaceable = new SearchByClass<>(ReplaceableController.class);
        tree.traverse(replaceable);
        for (ReplaceableController controller : replaceable.getSearchResults()) {
            controller.resolveReplacementSubTree(root);
        }
        HashTree converted = JMeter.convertSubTree(tree, true);
        ResultCollector collector = new ResultCollector();
        collector.setFilename(results);
        converted.add(converted.getArray()[0], collector);
        StandardJMeterEngine engine = new StandardJMeterEngine();
        engine.configure(converted);
        engine.run();
    }
}
